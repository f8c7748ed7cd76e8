// Package document turns records of the ledger into what people read: a run, several runs, the ladder of
// stages, a bench beside peers, a comparison, a profile, a search, a list. There is one builder for each
// kind of record. It makes a [Document]: sections of paragraphs, lists, named fields, tables, plots and
// code. There is one renderer for each form: [Document.Terminal] for a screen of a given width,
// [Document.Markdown], [Document.Page] for one HTML file that needs no script and nothing from the network,
// [Document.Body] for a page of the dashboard, and [Document.Step] for a step of a CI system.
//
// A record has the same document in all forms, at different depth: parts are [Always] shown, or [Long] and
// left out on a terminal, or [Brief] and shown on a terminal only. So a new field of a record is shown
// everywhere by one line of its builder, such as in RunStudy.facts for a run. What a terminal needs beside
// that is data of the document too: which columns it may drop, and which names it shortens.
//
// Every figure in a document names where it comes from: a [Span] has the record, the file and the key,
// and the format in which the number is printed. HTML has them as attributes:
//
//	<data data-source="20261116-160726-stage6-186dea/run.json#speedup.ratio" data-format="%.3f">0.819</data>
//
// So a test, or a reader, can compare every figure with the ledger. Texts of a record are spans with a
// source too. A sentence that sums up a part of a record, such as the clocks over all shapes, names that
// part ("#summary:performance"). Other text that this package writes has no digits of its own, except in
// names such as "p50".
//
// The flow is one way: [Reader] gathers the records of a study, its builder makes the document, and a
// renderer writes it. [Describe] returns the files that a record has for people. Records are untrusted:
// all their text is escaped for the format, and no text of a record becomes the name of a file.
//
// What CI systems read beside documents is made here too: issues of runs, JUnit suites and benchmark
// series, in the formats of internal/ci.
package document
