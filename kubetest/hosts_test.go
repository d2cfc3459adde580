package kubetest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hostsMap writes the test's ConfigMap with these lines.
func (w clusterWriter) hostsMap(create bool, key, lines string) {
	w.Helper()
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "custom"}, Data: map[string]string{key: lines}}
	if create {
		must(w.CoreV1().ConfigMaps("dns").Create(w.Context(), c, metav1.CreateOptions{}))(w.T)
	} else {
		must(w.CoreV1().ConfigMaps("dns").Update(w.Context(), c, metav1.UpdateOptions{}))(w.T)
	}
}

// Names of a ConfigMap appear, change and disappear within a second, without a
// restart.
func TestHostsConfigMap(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	corefile := "example.test 10.in-addr.arpa {\n hosts {\n  10.0.0.1 fixed.example.test\n  configmap dns/custom hosts\n  " + kubeconfig(t, api) + "\n }\n}\n"
	d := serve(t, corefile)
	fixed := lookupA("fixed.example.test", "NOERROR 10.0.0.1")
	db, none := func(data string) lookup { return lookupA("db.example.test", "NOERROR "+data) }, lookupA("db.example.test", "NXDOMAIN")
	d.await(fixed, none)
	load := d.startLoad(fixed)

	w.hostsMap(true, "hosts", "10.0.0.2 db.example.test\n")
	d.awaitChange("a new ConfigMap", db("10.0.0.2"))
	d.check(lookupPTR("2.0.0.10.in-addr.arpa", "NOERROR db.example.test."))
	w.hostsMap(false, "hosts", "10.0.0.3 db.example.test\n")
	d.awaitChange("a change", db("10.0.0.3"))
	w.hostsMap(false, "other", "10.0.0.9 db.example.test\n")
	d.awaitChange("a deleted key", none)
	w.hostsMap(false, "hosts", "10.0.0.4 db.example.test\nnot a line\n")
	d.awaitChange("a new key", db("10.0.0.4"))
	if n := d.logs(`hosts: Ignored invalid lines file="configmap dns/custom hosts" line=2 error="\"not\" is not an IP address" count=1`); n != 1 {
		t.Errorf("got %d warnings about the invalid line, want 1", n)
	}
	// Another object of the namespace is ignored.
	must(w.CoreV1().ConfigMaps("dns").Create(w.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "another"}, Data: map[string]string{"hosts": "10.0.0.9 db.example.test"},
	}, metav1.CreateOptions{}))(t)
	if err := w.CoreV1().ConfigMaps("dns").Delete(w.Context(), "custom", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d.awaitChange("a deleted ConfigMap", none)
	w.hostsMap(true, "hosts", "10.0.0.5 db.example.test\n")
	d.awaitChange("a ConfigMap created again", db("10.0.0.5"))

	// Other lines in the Corefile do not restart the watch.
	corefile += "other.test {\n hosts {\n  10.0.0.6 a.other.test\n }\n}\n"
	d.reload(corefile)
	d.check(db("10.0.0.5"), lookupA("a.other.test", "NOERROR 10.0.0.6"))
	if n := d.count("relists", "configmaps"); n != 1 {
		t.Errorf("%d lists, want the first alone", n)
	}

	// Without an API server the last state is kept, also over a reload.
	api.StopAPI()
	d.awaitFailures("configmaps", 2)
	d.check(fixed, db("10.0.0.5"))
	d.reload(corefile + "more.test {\n whoami\n}\n")
	d.check(fixed, db("10.0.0.5"))
	if err := api.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.hostsMap(false, "hosts", "10.0.0.7 db.example.test\n")
	d.await(db("10.0.0.7"))
	load.stop()
}
