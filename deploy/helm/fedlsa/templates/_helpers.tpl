{{- define "fedlsa.name" -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "fedlsa.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "fedlsa.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch  # keys have mode 600: they must not be opened to the group at every start
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "fedlsa.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "fedlsa.pageAddress" -}}
{{ ternary "0.0.0.0" "127.0.0.1" .Values.metrics.enabled }}
{{- end }}

{{/* Asked inside the container: the page need not be reachable from outside. */}}
{{- define "fedlsa.ask" -}}
exec:
  command: [python, -c, "import urllib.request as u; u.urlopen('http://127.0.0.1:{{ .Values.page.port }}/health', timeout=8)"]
timeoutSeconds: 10
{{- end }}

{{- define "fedlsa.probes" -}}
startupProbe:
  {{- include "fedlsa.ask" . | nindent 2 }}
  periodSeconds: 5
  failureThreshold: 36
livenessProbe:
  {{- include "fedlsa.ask" . | nindent 2 }}
  periodSeconds: 30
  failureThreshold: 3
readinessProbe:
  {{- include "fedlsa.ask" . | nindent 2 }}
  periodSeconds: 10
{{- end }}

{{- define "fedlsa.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
