// Package child runs a program that answers requests, one line each.
//
// Requests and responses are on standard input and output, or on descriptors 3 and 4 if standard
// input has something else. What the process prints besides is kept for the error of a process that
// dies. The process is in a group of its own, which is killed with it.
//
// Nothing of the process is trusted: a response has a time limit and a size limit, and every text of
// it that becomes part of a message is made a single printable line (OneLine).
package child
