package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// kernelOutput writes what kernels print. Kernels are not trusted: a prefix on every line and
// escaped control characters keep their text from looking like a message of attune, and from moving
// the cursor of a terminal. With json set a line is an object, so that standard error stays a list
// of JSON documents.
type kernelOutput struct {
	w     io.Writer
	width int // of a line, so that a terminal does not wrap it; 0 for no limit
	json  *bool
	step  bool // in a step of GitHub Actions, whose runner takes ##[ for a command

	mu   sync.Mutex
	line []byte // that has not ended yet
}

const (
	kernelPrefix  = "kernel: "
	maxKernelLine = 4096 // bytes; a longer line is split
)

// Write takes a part of the text; printf does not end every text with a newline.
func (k *kernelOutput) Write(text []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, b := range text {
		if b == '\n' {
			k.end()
			continue
		}
		if k.line = append(k.line, b); len(k.line) >= maxKernelLine && utf8.Valid(k.line) || len(k.line) >= maxKernelLine+utf8.UTFMax {
			k.end()
		}
	}
	return len(text), nil
}

// flush writes the last line if it has not ended.
func (k *kernelOutput) flush() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.line) > 0 {
		k.end()
	}
}

func (k *kernelOutput) end() {
	line := printable(string(k.line))
	if k.step {
		line = strings.ReplaceAll(line, "##[", "# #[")
	}
	text := []rune(line)
	k.line = k.line[:0]
	if *k.json {
		// Without standard error there is nowhere left to report to.
		_ = json.NewEncoder(k.w).Encode(map[string]any{"message_type": "kernel_output", "message": string(text)})
		return
	}
	for k.width > 0 && len(text) > k.width-len(kernelPrefix) {
		part := k.width - len(kernelPrefix)
		fmt.Fprintf(k.w, "%s%s\n", kernelPrefix, string(text[:part]))
		text = text[part:]
	}
	fmt.Fprintf(k.w, "%s%s\n", kernelPrefix, string(text))
}

// printable escapes everything but printable characters and tabs, as Go does in a quoted string.
func printable(text string) string {
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[0])
		case r == '\t' || unicode.IsPrint(r):
			out.WriteRune(r)
		default:
			out.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		text = text[size:]
	}
	return out.String()
}
