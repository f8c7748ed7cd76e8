// Package finding has the one form of a defect that a checker reports, and the kinds of defects.
//
// The simulator's checkers, the comparison of a device's buffers and the audit of the PTX all report
// a Finding. It stays data through devices, gates, records and pages; text is made where it is shown.
// The JSON of a Finding is part of records and of --json, so its decoder also reads the forms of
// earlier records.
package finding
