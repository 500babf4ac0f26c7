// What pages find there: the explorer's server says what its settings are, the site's theme tells when a page is shown.
declare const ABOUT: any;
declare const document$: { subscribe(show: () => void): void };
