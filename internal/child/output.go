package child

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"time"
)

// maxOutput is how much of the output of a program is kept.
const maxOutput = 16 << 20

// Output runs a program to its end and returns what it prints on standard output. The error is that of
// a cancelled context or of the start, a *LimitError for the time limit, or an *ExitError with the end
// of what it printed on standard error.
func Output(ctx context.Context, limit time.Duration, program string, args ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out head
	var printed tail
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &out, &printed
	_, err := Run(limited, cmd, Limits{})
	exit, failed := errors.AsType[*ExitError](err)
	switch {
	case err == nil:
		return out.text.String(), nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case limited.Err() != nil:
		return "", &LimitError{Time: limit}
	case failed:
		exit.Stderr = printed.text
	}
	return "", err
}

// head keeps the first bytes that a process prints.
type head struct{ text bytes.Buffer }

func (h *head) Write(data []byte) (int, error) {
	h.text.Write(data[:min(len(data), maxOutput-h.text.Len())])
	return len(data), nil
}
