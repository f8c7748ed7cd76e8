// Package launch writes the files with which a cluster's scheduler starts workers of a fleet: a batch
// script for Slurm, a job for Kubernetes. The schedulers only start workers and end them; which job a
// worker does is the fleet's matter.
//
// Every value that a user names is checked before it is written, so that no value becomes a command or
// a line of its own.
package launch
