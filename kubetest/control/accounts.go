package control

// The users whose tokens the API server knows. Each also is in a group of its own, group-of-USER.
// What they may do is decided by RBAC: nothing at first. Clients without a token may do everything.
const (
	Seamark  = "system:serviceaccount:kube-system:seamark"
	Reader   = "system:serviceaccount:shop:reader"
	Operator = "system:serviceaccount:shop:operator"
	Nobody   = "system:serviceaccount:shop:nobody"
)

// Audiences of tokens: the API server's own, and another one.
const (
	APIAudience = "https://kubernetes.default.svc"
	Audience    = "seamark"
)

// Token returns the token of a user for an audience.
func Token(user, audience string) string { return "token/" + user + "/" + audience }
