// Package patch reads unified diffs against the files of a kernel and applies them in memory.
//
// A diff comes from a program that nobody trusts. It may change files and add files, below the
// folder only. Absolute paths, paths that leave the folder, links, binary changes, renames and
// deletions are refused. A hunk must match the lines of the file exactly; it may be at another line
// than its header says. Every error names the line of the diff, or the file and its line.
//
// Outside finds the directives of a changed source that would make the compiler read a file outside
// of the kernel's folder.
package patch
