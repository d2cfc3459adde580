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

	clusterScoped  bool
	custom         bool // behaves as a custom resource: no protobuf, updates name a resourceVersion
	hasStatus      bool // there is /status, and other writes may not change the status
	statusOnCreate bool // the creator may set the status
	new, newList   func() runtime.Object

	defaults func(obj runtime.Object)            // upon decoding
	prepare  func(obj, old runtime.Object)       // before storing; old is nil upon creation
	fields   func(obj runtime.Object) fields.Set // selectable besides name and namespace
	index    string                              // the field by which the watch cache has an index, as kube-apiserver's
}

// kinds returns the table.
func kinds() []kind {
	core, discovery := corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion

	// What the server and its tests read and write.
	return []kind{{
		gv: core, name: "Namespace", resource: "namespaces", hasStatus: true, clusterScoped: true,
		new: create[corev1.Namespace], newList: create[corev1.NamespaceList],
		defaults: on(defaultNamespace),
		prepare:  onBoth(prepareNamespace),
		fields: from(func(n *corev1.Namespace) fields.Set {
			return fields.Set{"status.phase": string(n.Status.Phase)}
		}),
	}, {
		gv: core, name: "Node", resource: "nodes", hasStatus: true, clusterScoped: true, statusOnCreate: true,
		new: create[corev1.Node], newList: create[corev1.NodeList],
		fields: from(func(n *corev1.Node) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(n.Spec.Unschedulable)}
		}),
	}, {
		gv: core, name: "Pod", resource: "pods", hasStatus: true,
		new: create[corev1.Pod], newList: create[corev1.PodList],
		defaults: on(defaultPod),
		prepare:  onBoth(preparePod),
		index:    "spec.nodeName",
		fields: from(func(p *corev1.Pod) fields.Set {
			return fields.Set{
				"spec.nodeName": p.Spec.NodeName,
				"status.phase":  string(p.Status.Phase),
				"status.podIP":  p.Status.PodIP,
			}
		}),
	}, {
		gv: core, name: "Service", resource: "services", hasStatus: true,
		new: create[corev1.Service], newList: create[corev1.ServiceList],
		defaults: on(defaultService),
		prepare:  onBoth(prepareService),
		fields: from(func(s *corev1.Service) fields.Set {
			return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		}),
	}, {
		gv: core, name: "Endpoints", resource: "endpoints",
		//lint:ignore SA1019 the real server serves it
		new: create[corev1.Endpoints], newList: create[corev1.EndpointsList],
		defaults: on(defaultEndpoints),
	}, {
		gv: core, name: "ConfigMap", resource: "configmaps",
		new: create[corev1.ConfigMap], newList: create[corev1.ConfigMapList],
	}, {
		gv: core, name: "Event", resource: "events",
		new: create[corev1.Event], newList: create[corev1.EventList],
	}, {
		gv: discovery, name: "EndpointSlice", resource: "endpointslices",
		new: create[discoveryv1.EndpointSlice], newList: create[discoveryv1.EndpointSliceList],
		defaults: on(defaultEndpointSlice),
	}, {

		// What the canary and the manifests create.
		gv: appsv1.SchemeGroupVersion, name: "Deployment", resource: "deployments", hasStatus: true,
		new: create[appsv1.Deployment], newList: create[appsv1.DeploymentList],
		defaults: on(defaultDeployment),
		prepare:  onBoth(prepareDeployment),
	}, {
		gv: appsv1.SchemeGroupVersion, name: "DaemonSet", resource: "daemonsets",
		new: create[appsv1.DaemonSet], newList: create[appsv1.DaemonSetList],
	}, {
		gv: autoscalingv2.SchemeGroupVersion, name: "HorizontalPodAutoscaler", resource: "horizontalpodautoscalers",
		new: create[autoscalingv2.HorizontalPodAutoscaler], newList: create[autoscalingv2.HorizontalPodAutoscalerList],
	}, {
		gv: core, name: "ServiceAccount", resource: "serviceaccounts",
		new: create[corev1.ServiceAccount], newList: create[corev1.ServiceAccountList],
	}, {
		gv: networkingv1.SchemeGroupVersion, name: "NetworkPolicy", resource: "networkpolicies",
		new: create[networkingv1.NetworkPolicy], newList: create[networkingv1.NetworkPolicyList],
	}, {
		gv: networkingv1.SchemeGroupVersion, name: "Ingress", resource: "ingresses", hasStatus: true, statusOnCreate: true,
		new: create[networkingv1.Ingress], newList: create[networkingv1.IngressList],
	}, {
		gv: policyv1.SchemeGroupVersion, name: "PodDisruptionBudget", resource: "poddisruptionbudgets",
		new: create[policyv1.PodDisruptionBudget], newList: create[policyv1.PodDisruptionBudgetList],
	}, {
		gv: rbacv1.SchemeGroupVersion, name: "Role", resource: "roles",
		new: create[rbacv1.Role], newList: create[rbacv1.RoleList],
	}, {
		gv: rbacv1.SchemeGroupVersion, name: "RoleBinding", resource: "rolebindings",
		new: create[rbacv1.RoleBinding], newList: create[rbacv1.RoleBindingList],
	}, {
		gv: rbacv1.SchemeGroupVersion, name: "ClusterRole", resource: "clusterroles", clusterScoped: true,
		new: create[rbacv1.ClusterRole], newList: create[rbacv1.ClusterRoleList],
	}, {
		gv: rbacv1.SchemeGroupVersion, name: "ClusterRoleBinding", resource: "clusterrolebindings", clusterScoped: true,
		new: create[rbacv1.ClusterRoleBinding], newList: create[rbacv1.ClusterRoleBindingList],
	}, importKind("v1alpha1"), importKind("v1beta1")}
}

// importKind returns a version of a custom resource. Both versions have the same objects.
func importKind(version string) kind {
	return kind{
		gv: importVersion(version), name: "ServiceImport", resource: "serviceimports", hasStatus: true, custom: true,
		new: create[ServiceImport], newList: create[ServiceImportList],
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
