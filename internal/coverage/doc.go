// Package coverage says which source lines of a kernel its launches have executed, and which of its
// conditions have had only one outcome. Data comes from the simulator; the lab adds up the launches
// of a run.
package coverage
