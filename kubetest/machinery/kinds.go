package machinery

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A kind is a row of the table of served resources. Its functions are called with
// objects of its own Go type only, and may be nil.
type kind struct {
	gv       schema.GroupVersion
	name     string // the Kind
	resource string
	singular string

	clusterScoped  bool
	custom         bool // behaves as a custom resource: no protobuf, updates name a resourceVersion
	statusOnCreate bool // the creator may set the status
	new, newList   func() runtime.Object

	defaults   func(obj runtime.Object)            // upon decoding
	prepare    func(obj, old runtime.Object)       // before storing; old is nil upon creation
	keepSpec   func(obj, old runtime.Object)       // restores the fields that a write to /status may not change; nil: there is no /status
	keepStatus func(obj, old runtime.Object)       // restores the fields that any other write may not change
	fieldNames []string                            // selectable besides name and namespace
	fields     func(obj runtime.Object) fields.Set // the values of fieldNames
	index      string                              // the one of fieldNames by which the watch cache has an index, as kube-apiserver's
}

// kinds returns the table.
func kinds() []kind {
	core, discovery := corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion

	// What the server and its tests read and write.
	return []kind{{
		gv: core, name: "Namespace", resource: "namespaces", singular: "namespace", clusterScoped: true,
		new: create[corev1.Namespace], newList: create[corev1.NamespaceList],
		defaults:   on(defaultNamespace),
		prepare:    onBoth(prepareNamespace),
		keepSpec:   onBoth(func(n, old *corev1.Namespace) { n.Spec = old.Spec }),
		keepStatus: onBoth(func(n, old *corev1.Namespace) { n.Status = old.Status }),
		fieldNames: []string{"status.phase"},
		fields: from(func(n *corev1.Namespace) fields.Set {
			return fields.Set{"status.phase": string(n.Status.Phase)}
		}),
	}, {
		gv: core, name: "Node", resource: "nodes", singular: "node", clusterScoped: true, statusOnCreate: true,
		new: create[corev1.Node], newList: create[corev1.NodeList],
		keepSpec:   onBoth(func(n, old *corev1.Node) { n.Spec = old.Spec }),
		keepStatus: onBoth(func(n, old *corev1.Node) { n.Status = old.Status }),
		fieldNames: []string{"spec.unschedulable"},
		fields: from(func(n *corev1.Node) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(n.Spec.Unschedulable)}
		}),
	}, {
		gv: core, name: "Pod", resource: "pods", singular: "pod",
		new: create[corev1.Pod], newList: create[corev1.PodList],
		defaults:   on(defaultPod),
		prepare:    onBoth(preparePod),
		keepSpec:   onBoth(func(p, old *corev1.Pod) { p.Spec = old.Spec }),
		keepStatus: onBoth(func(p, old *corev1.Pod) { p.Status = old.Status }),
		fieldNames: []string{"spec.nodeName", "status.phase", "status.podIP"},
		index:      "spec.nodeName",
		fields: from(func(p *corev1.Pod) fields.Set {
			return fields.Set{
				"spec.nodeName": p.Spec.NodeName,
				"status.phase":  string(p.Status.Phase),
				"status.podIP":  p.Status.PodIP,
			}
		}),
	}, {
		gv: core, name: "Service", resource: "services", singular: "service",
		new: create[corev1.Service], newList: create[corev1.ServiceList],
		defaults:   on(defaultService),
		prepare:    onBoth(prepareService),
		keepSpec:   onBoth(func(s, old *corev1.Service) { s.Spec = old.Spec }),
		keepStatus: onBoth(func(s, old *corev1.Service) { s.Status = old.Status }),
		fieldNames: []string{"spec.clusterIP", "spec.type"},
		fields: from(func(s *corev1.Service) fields.Set {
			return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		}),
	}, {
		gv: core, name: "Endpoints", resource: "endpoints", singular: "endpoints",
		//lint:ignore SA1019 the real server serves it
		new: create[corev1.Endpoints], newList: create[corev1.EndpointsList],
		defaults: on(defaultEndpoints),
	}, {
		gv: core, name: "ConfigMap", resource: "configmaps", singular: "configmap",
		new: create[corev1.ConfigMap], newList: create[corev1.ConfigMapList],
	}, {
		gv: core, name: "Event", resource: "events", singular: "event",
		new: create[corev1.Event], newList: create[corev1.EventList],
	}, {
		gv: discovery, name: "EndpointSlice", resource: "endpointslices", singular: "endpointslice",
		new: create[discoveryv1.EndpointSlice], newList: create[discoveryv1.EndpointSliceList],
		defaults: on(defaultEndpointSlice),
	}, {

		// What the canary and the manifests create.
		gv: appsv1.SchemeGroupVersion, name: "Deployment", resource: "deployments", singular: "deployment",
		new: create[appsv1.Deployment], newList: create[appsv1.DeploymentList],
		defaults:   on(defaultDeployment),
		prepare:    onBoth(prepareDeployment),
		keepSpec:   onBoth(func(d, old *appsv1.Deployment) { d.Spec = old.Spec }),
		keepStatus: onBoth(func(d, old *appsv1.Deployment) { d.Status = old.Status }),
	}, {
		gv: appsv1.SchemeGroupVersion, name: "DaemonSet", resource: "daemonsets", singular: "daemonset",
		new: create[appsv1.DaemonSet], newList: create[appsv1.DaemonSetList],
	}, {
		gv: autoscalingv2.SchemeGroupVersion, name: "HorizontalPodAutoscaler", resource: "horizontalpodautoscalers",
		singular: "horizontalpodautoscaler",
		new:      create[autoscalingv2.HorizontalPodAutoscaler],
		newList:  create[autoscalingv2.HorizontalPodAutoscalerList],
	}, {
		gv: core, name: "ServiceAccount", resource: "serviceaccounts", singular: "serviceaccount",
		new: create[corev1.ServiceAccount], newList: create[corev1.ServiceAccountList],
	}, {
		gv: networkingv1.SchemeGroupVersion, name: "NetworkPolicy", resource: "networkpolicies",
		singular: "networkpolicy",
		new:      create[networkingv1.NetworkPolicy], newList: create[networkingv1.NetworkPolicyList],
	}, {
		gv: networkingv1.SchemeGroupVersion, name: "Ingress", resource: "ingresses", singular: "ingress", statusOnCreate: true,
		new: create[networkingv1.Ingress], newList: create[networkingv1.IngressList],
		keepSpec:   onBoth(func(in, old *networkingv1.Ingress) { in.Spec = old.Spec }),
		keepStatus: onBoth(func(in, old *networkingv1.Ingress) { in.Status = old.Status }),
	}, {
		gv: policyv1.SchemeGroupVersion, name: "PodDisruptionBudget", resource: "poddisruptionbudgets",
		singular: "poddisruptionbudget",
		new:      create[policyv1.PodDisruptionBudget], newList: create[policyv1.PodDisruptionBudgetList],
	}, {
		gv: rbacv1.SchemeGroupVersion, name: "Role", resource: "roles", singular: "role",
		new: create[rbacv1.Role], newList: create[rbacv1.RoleList],
	}, {
		gv: rbacv1.SchemeGroupVersion, name: "RoleBinding", resource: "rolebindings", singular: "rolebinding",
		new: create[rbacv1.RoleBinding], newList: create[rbacv1.RoleBindingList],
	}, {
		gv: rbacv1.SchemeGroupVersion, name: "ClusterRole", resource: "clusterroles", singular: "clusterrole",
		clusterScoped: true,
		new:           create[rbacv1.ClusterRole], newList: create[rbacv1.ClusterRoleList],
	}, {
		gv: rbacv1.SchemeGroupVersion, name: "ClusterRoleBinding", resource: "clusterrolebindings",
		singular: "clusterrolebinding", clusterScoped: true,
		new: create[rbacv1.ClusterRoleBinding], newList: create[rbacv1.ClusterRoleBindingList],
	}, importKind("v1alpha1"), importKind("v1beta1")}
}

// importKind returns a version of a custom resource. Both versions have the same objects.
func importKind(version string) kind {
	return kind{
		gv: importVersion(version), name: "ServiceImport", resource: "serviceimports", singular: "serviceimport", custom: true,
		new: create[ServiceImport], newList: create[ServiceImportList],
		keepSpec:   onBoth(func(s, old *ServiceImport) { s.Spec = old.Spec }),
		keepStatus: onBoth(func(s, old *ServiceImport) { s.Status = old.Status }),
	}
}

// create returns a new T as an object.
func create[T any, P interface {
	*T
	runtime.Object
}]() runtime.Object {
	return P(new(T))
}

// on adapts a function of one Go type to the table.
func on[P runtime.Object](f func(P)) func(runtime.Object) {
	return func(obj runtime.Object) { f(obj.(P)) }
}

// onBoth adapts a function of a new object and the old one, which may be nil.
func onBoth[P runtime.Object](f func(obj, old P)) func(obj, old runtime.Object) {
	return func(obj, old runtime.Object) {
		was, _ := old.(P)
		f(obj.(P), was)
	}
}

// from adapts a function that reads fields.
func from[P runtime.Object](f func(P) fields.Set) func(runtime.Object) fields.Set {
	return func(obj runtime.Object) fields.Set { return f(obj.(P)) }
}
