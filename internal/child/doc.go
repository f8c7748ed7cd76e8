// Package child runs a program that answers requests, one line each.
//
// Requests and responses are on standard input and output, or on descriptors 3 and 4 if standard
// input has something else. What the process prints besides is kept for the error of a process that
// dies.
//
// Every foreign program runs in a Family: a supervisor, which is this program started again, keeps all
// processes below it together, with limits for their sum, and ends them with the program. This process
// ends a family itself if its supervisor cannot, and adopts the processes of a supervisor that was
// killed.
//
// Nothing of the process is trusted: a response has a time limit and a size limit, and every text of
// it that becomes part of a message is made a single printable line (OneLine).
package child
