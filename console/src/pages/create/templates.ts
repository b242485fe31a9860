/** What one begins with: the least that the API server takes, of the kinds that are made by hand. */
export const TEMPLATES: Record<string, (namespace: string) => string> = {
  Deployment: (namespace) => `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: ${namespace}
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: web
        image: nginx:1.27
        ports:
        - containerPort: 80
        resources:
          requests: {cpu: 100m, memory: 128Mi}
          limits: {memory: 256Mi}
`,
  Service: (namespace) => `apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: ${namespace}
spec:
  selector: {app: web}
  ports:
  - port: 80
    targetPort: 80
`,
  ConfigMap: (namespace) => `apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: ${namespace}
data:
  key: value
`,
  Job: (namespace) => `apiVersion: batch/v1
kind: Job
metadata:
  name: once
  namespace: ${namespace}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: once
        image: busybox:1.36
        command: [sh, -c, "echo done"]
`,
  NetworkPolicy: (namespace) => `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: only-from-web
  namespace: ${namespace}
spec:
  podSelector: {matchLabels: {app: db}}
  policyTypes: [Ingress]
  ingress:
  - from:
    - podSelector: {matchLabels: {app: web}}
`,
  Namespace: () => `apiVersion: v1
kind: Namespace
metadata:
  name: shop
`,
};

/** A kind without a template begins with an empty object of it. */
export function template(kind: string, namespace: string): string {
  const made = TEMPLATES[kind]?.(namespace || "default");
  return made ?? (kind ? `apiVersion: v1\nkind: ${kind}\nmetadata:\n  name: \n` : (TEMPLATES["Deployment"] as (namespace: string) => string)(namespace || "default"));
}
