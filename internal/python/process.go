package python

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"attune/internal/child"
)

// Options describe a process.
type Options struct {
	Python  string        // path, from Find
	Program string        // its text
	Dir     string        // working directory
	Env     []string      // besides the environment of attune
	Limit   time.Duration // of each response
	Memory  int64         // limit in bytes; 0 for none
}

const maxLineBytes = 4 << 20 // of a response

// Process is a Python process. Its methods are called one at a time.
type Process struct {
	*child.Process
	python string
	last   int // ID of the last request
}

// Start starts a process, with the program on standard input. The error is an *Error.
func Start(o Options) (*Process, error) {
	p, err := child.Start(child.Options{
		Command: []string{o.Python, "-"}, Dir: o.Dir, Env: o.Env, Input: strings.NewReader(o.Program),
		Limit: o.Limit, Memory: o.Memory, MaxLine: maxLineBytes,
	})
	if err != nil {
		return nil, &Error{fmt.Sprintf("%s does not start: %v", o.Python, err), UseAnother}
	}
	return &Process{Process: p, python: o.Python}, nil
}

// Call sends a request, which is encoded as a JSON object and gets an "id", and decodes the response
// into reply, which may be nil. The error is an *Error, or that of a cancelled context. A response
// with an "error" is an *Error that leaves the process usable.
func (p *Process) Call(ctx context.Context, request, reply any) error {
	if p.Lost() {
		return &Error{"its Python was lost to an earlier failure", ""}
	}
	p.last++
	line, err := p.Exchange(ctx, encode(request, p.last))
	if err != nil {
		return p.failure(ctx, err)
	}
	failed, err := decode(line, p.last, reply)
	if err != nil {
		p.Lose()
		return p.failure(ctx, err)
	}
	if failed != nil {
		return failed
	}
	return nil
}

// failure is the error of a process that is lost.
func (p *Process) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	name := filepath.Base(p.python)
	if p.Late() {
		name = p.python
	}
	return &Error{fmt.Sprintf("%s %v", name, err), ""}
}
