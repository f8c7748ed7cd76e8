// Package web is the local dashboard of `attune serve`: pages and an HTTP API over a ledger.
//
// The pages are rendered on the server from the records, by html/template, and work without
// JavaScript. assets/app.js adds keys, the choice of a theme, filters, and live updates by
// Server-Sent Events. Everything is embedded in the program; a page loads nothing from elsewhere.
//
// server.go has the routes, guard.go what a request must pass before it reaches one. Each page has
// a file of its own. records.go reads the ledger: the list of records is read again only when one
// was added or removed, and a record, which never changes, is read once. live.go follows the
// journal of a search that runs. job.go starts `attune run` as a child process.
//
// The API returns the documents that commands print with --json (package catalog). assets/openapi.json
// describes it, and a test compares every response with it.
package web
