package kubetest

import "testing"

func TestServerTmpAway(t *testing.T) {
	api := start(t)
	writer(t, api).shop()
	option := kubeconfig(t, api)
	d := serve(t, corefileOf(option, "startup_timeout 300ms"))
	d.becomes(shopNames()...)
	api.StopAPI()
	d.failing("services", 2)
	d.reload(corefileOf(option, "startup_timeout 300ms", "ttl 30"))
	t.Log(d.ask("udp", shopNames()[0]))
}
