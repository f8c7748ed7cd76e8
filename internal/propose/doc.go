// Package propose lets an outside program propose variants of a kernel and patches to its sources.
//
// The program speaks JSON lines on standard input and output (docs/proposers.md). It gets the search
// space and the sources once, and the state of the search before each of its answers. Its proposals
// are judged by every gate, like the candidates of the tuner itself.
//
// Nothing of the program is trusted. It can hang, die or send anything: that is a fault, one line in
// the record and one for the user, and the search goes on. After three faults in a row the program is
// not asked again. A proposal that breaks a rule is refused, and the program learns the reason. A
// patch changes only sources that the build reads, and never what is checked.
package propose
