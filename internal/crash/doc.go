// Package crash turns a panic of the program into an error, and writes a report of it.
//
// A panic is a defect of attune, whatever the input was. The user gets one line and the path of a
// report; the stack is in the report. [Catch] recovers a panic of the running goroutine, and a
// [Group] carries the panic of a worker to the goroutine that waits for it.
package crash
