// Package trial is the work of attune's fleet: what is in a job, and how a worker does it on its lab.
//
// A trial needs only its job and the kernel's files: inputs follow from seeds, and the references are
// computed where the kernel runs. So a job has about a kilobyte. The kinds:
//
//   - evaluate: one candidate of a search, beside the best so far (tuner.Trial);
//   - finals: the finals of a search, on one machine (tuner.Finals);
//   - command: a command of attune with its record, such as the run of one variant.
//
// A Searcher hands the trials of a search to a fleet, and Commands whole commands. A Bench does all of
// them on this machine.
package trial
