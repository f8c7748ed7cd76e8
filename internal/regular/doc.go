// Package regular opens, reads and writes regular files. A pipe or a device under the name of a file
// would make a reader wait forever, or read without end; both are refused, and so is more than a limit.
package regular
