// SCAFFLSA (Algorithm 2) as one writes it in C++ for speed: rank-one observations, i.i.d. draws, equal weights, float64.
//
// It draws what fedlsa draws (Philox4x32-10 keyed by seed, agent and step, then alias tables), so its theta is fedlsa's
// up to rounding. Sixteen agents draw together, so that the compiler vectorises over them, and without a branch, since a
// coin cannot be predicted; then some of them step together, so that one agent's step need not wait for its last one.
// The dimension, a power of two, is a template argument. benchmarks/native.py builds it:
//
//     c++ -std=c++17 -O3 -march=native -fopenmp-simd -shared -fPIC -DDIMENSION=8 scafflsa.cpp -o scafflsa.so

#include <algorithm>
#include <cstdint>
#include <vector>

using Int = std::int64_t;
using Word = std::uint32_t;
using LongWord = std::uint64_t;

constexpr int LANES = 16;  // agents that draw together
constexpr int AHEAD = 64;  // steps that are drawn at once: their words stay in the first-level cache
constexpr int NUMBERS = 64;  // of the parameters of the agents that step together: they stay in registers

struct Outcome {
    Word u, v;  // where these rows begin
    double y;
};

struct Problem {  // as in native.py
    Int agents, local_steps;
    double eta;
    const Word *slots;                 // the alias tables, one after the other
    const Word *slot, *shift, *first;  // by agent: where its table begins, 32 - bits of it, where its outcomes begin
    const Outcome *outcomes;
    const double *rows, *start;
};

inline void philox(Word index, Word agent, LongWord seed, Word out[4][LANES]) {
#pragma omp simd
    for (int lane = 0; lane < LANES; ++lane) {
        Word c0 = index, c1 = agent + Word(lane), c2 = 0, c3 = 0, k0 = Word(seed), k1 = Word(seed >> 32);
        for (int i = 0; i < 10; ++i) {
            const LongWord p0 = LongWord(c0) * 0xD2511F53u, p1 = LongWord(c2) * 0xCD9E8D57u;
            c0 = Word(p1 >> 32) ^ c1 ^ k0, c1 = Word(p1);
            c2 = Word(p0 >> 32) ^ c3 ^ k1, c3 = Word(p0);
            k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
        }
        out[0][lane] = c0, out[1][lane] = c1, out[2][lane] = c2, out[3][lane] = c3;
    }
}

inline Word choose(Word word, Word entry, Word shift) {
    const Word low = (Word(1) << shift) - 1;
    const Word own = -Word((word & low) < (entry & low));  // all ones or 0
    return (entry ^ ((entry ^ word) & own)) >> shift;
}

// picked[j][lane] = what agent + lane observes at its step begin + j, for j < count <= AHEAD
inline void draw(const Problem &p, const Word *slot, const Word *shift, const Word *first, Word agent, Int begin,
                 int count, LongWord seed, Word picked[AHEAD][LANES]) {
    Word words[AHEAD / 4 + 1][4][LANES];
    const int offset = int(begin % 4);
    for (int b = 0; 4 * b < offset + count; ++b) philox(Word(begin / 4 + b), agent, seed, words[b]);
    for (int j = 0; j < count; ++j) {
        const Word *word = words[(offset + j) / 4][(offset + j) % 4];
#pragma omp simd
        for (int lane = 0; lane < LANES; ++lane) {
            const Word entry = p.slots[slot[lane] + (word[lane] >> shift[lane])];
            picked[j][lane] = first[lane] + choose(word[lane], entry, shift[lane]);
        }
    }
}

template <int d>
inline void step(const double *u, const double *v, double y, double eta, const double *drift, double *theta_hat) {
    double sum[d];
    for (int i = 0; i < d; ++i) sum[i] = v[i] * theta_hat[i];
    for (int half = d / 2; half; half /= 2)  // a tree: its sums do not wait for one another
        for (int i = 0; i < half; ++i) sum[i] += sum[i + half];
    const double move = eta * (sum[0] - y);
#pragma omp simd
    for (int i = 0; i < d; ++i) theta_hat[i] += drift[i] - move * u[i];
}

// `together` agents do `count` local steps each
template <int d, int together>
inline void advance(const Problem &p, const Word picked[AHEAD][LANES], int lane, int count, const double (*drift)[d],
                    double (*theta_hat)[d]) {
    double own[together][d], drifts[together][d];
    for (int g = 0; g < together; ++g) std::copy_n(theta_hat[g], d, own[g]), std::copy_n(drift[g], d, drifts[g]);
    for (int j = 0; j < count; ++j) {
#pragma GCC unroll 16
        for (int g = 0; g < together; ++g) {
            const Outcome z = p.outcomes[picked[j][lane + g]];
            step<d>(p.rows + z.u, p.rows + z.v, z.y, p.eta, drifts[g], own[g]);
        }
    }
    for (int g = 0; g < together; ++g) std::copy_n(own[g], d, theta_hat[g]);
}

template <int d> void run(const Problem &p, Int rounds, LongWord seed, double *theta) {
    static_assert((d & (d - 1)) == 0, "sums are folded in halves");
    constexpr int together = std::max(1, std::min(LANES, NUMBERS / d));
    const Int N = p.agents, H = p.local_steps, padded = (N + LANES - 1) / LANES * LANES;
    const double gain = 1 / (p.eta * double(H));
    std::vector<double> hats(padded * d), xi(padded * d, 0.0);
    std::vector<Word> slot(padded, p.slot[0]), shift(padded, p.shift[0]), first(padded, p.first[0]);
    std::copy_n(p.slot, N, slot.begin()), std::copy_n(p.shift, N, shift.begin()), std::copy_n(p.first, N, first.begin());
    std::copy_n(p.start, d, theta);
    Word picked[AHEAD][LANES];
    for (Int t = 0; t < rounds; ++t) {
        for (Int c = 0; c < padded; c += LANES) {
            double theta_hat[LANES][d], drift[LANES][d];
            for (int lane = 0; lane < LANES; ++lane)
                for (int i = 0; i < d; ++i)
                    theta_hat[lane][i] = theta[i], drift[lane][i] = p.eta * xi[(c + lane) * d + i];
            for (Int begin = t * H, end = begin + H; begin < end; begin += AHEAD) {
                const int count = int(std::min<Int>(AHEAD, end - begin));
                draw(p, &slot[c], &shift[c], &first[c], Word(c), begin, count, seed, picked);
                for (int lane = 0; lane < LANES; lane += together)
                    advance<d, together>(p, picked, lane, count, drift + lane, theta_hat + lane);
            }
            std::copy_n(theta_hat[0], LANES * d, &hats[c * d]);
        }
        double mean[d] = {};
        for (Int c = 0; c < N; ++c)
            for (int i = 0; i < d; ++i) mean[i] += hats[c * d + i] / double(N);
        for (Int c = 0; c < N; ++c)
            for (int i = 0; i < d; ++i) xi[c * d + i] += gain * (mean[i] - hats[c * d + i]);  // keeps sum_c xi_c = 0
        std::copy_n(mean, d, theta);
    }
}

extern "C" void scafflsa(const Problem *problem, Int rounds, LongWord seed, double *theta) {
    run<DIMENSION>(*problem, rounds, seed, theta);
}
