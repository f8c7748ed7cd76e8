// Package document turns records of the ledger into reports: a run, several runs, the ladder of
// stages, a bench beside peers, or a search. A [Document] is sections of paragraphs, lists, tables and
// plots. It is rendered as Markdown with SVG files beside it, and as one HTML page that needs no
// script and nothing from the network.
//
// Every figure in a document names where it comes from: a [Span] has the record, the file and the key,
// and the format in which the number is printed. HTML has them as attributes:
//
//	<data data-source="20261116-160726-stage6-186dea/run.json#speedup.ratio" data-format="%.3f">0.819</data>
//
// So a test, or a reader, can compare every figure with the ledger. Texts of a record are spans with a
// source too. Text that this package writes has no digits of its own, except in names such as "p50".
//
// The flow is one way: [Reader] gathers the records of a study, the functions of a study build the
// document, and [Document.Files] or [Document.Page] renders it. Records are untrusted: all their text
// is escaped for the format, and no text of a record becomes the name of a file.
package document
