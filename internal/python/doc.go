// Package python runs a Python child process that answers requests, one line of JSON each.
//
// The program comes from attune on standard input. Requests are on descriptor 3 and responses on
// descriptor 4, so that nothing which a library prints is mistaken for a response. What the process
// prints is kept for the error of a process that dies. It ends with all processes that it has
// started (package child).
//
// Nothing of the process is trusted: a response has a size limit, must be JSON and have the number of
// its request, and every text of it becomes a single printable line.
package python
