package control

// The users whose tokens the API server knows: [Reader] may get [ReviewedPath], [Operator] may
// post to it, too, and [Nobody] may do nothing.
const (
	Reader   = "system:serviceaccount:shop:reader"
	Operator = "system:serviceaccount:shop:operator"
	Nobody   = "system:serviceaccount:shop:nobody"

	ReviewedPath = "/seamark/admin"
)

// Audiences of tokens: the API server's own, and another one.
const (
	APIAudience = "https://kubernetes.default.svc"
	Audience    = "seamark"
)

// Token returns the token of a user for an audience.
func Token(user, audience string) string { return "token/" + user + "/" + audience }
