// Package doctor examines the machine: for each ability of attune whether it works here, why, and
// how to get it if it does not.
package doctor
