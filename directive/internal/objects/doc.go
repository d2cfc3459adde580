// Package objects has what the directives share whose data users write into objects of their own
// namespaces: the zones that the Corefile delegates to each namespace (delegation.go), the watch and the
// owner of each name (objects.go), turns of namespaces (turns.go), and what is wrong with objects and
// how it is told (faults.go). A directive has the format of the objects, and a Table for its queries.
package objects
