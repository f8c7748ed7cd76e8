// Package childtest writes the programs that tests start.
//
// Linux refuses to execute a file that a process has open for writing ("text file busy"). A child
// between fork and execve has all descriptors of its parent, also one that another goroutine writes
// a program with. If that goroutine closes the file and starts the program before the child calls
// execve, the start fails. So a test fails now and then if it writes a script with os.WriteFile and
// runs it while another goroutine starts a process.
package childtest
