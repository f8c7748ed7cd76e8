package python

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// encode returns the line of a request: its JSON object with the ID as the first key.
func encode(request any, id int) []byte {
	text, err := json.Marshal(request)
	if err != nil || len(text) < 2 || text[0] != '{' {
		panic(fmt.Sprintf("BUG: a request is no JSON object: %s, %v", text, err))
	}
	line := strconv.AppendInt([]byte(`{"id":`), int64(id), 10)
	if len(text) > 2 {
		line = append(line, ',')
	}
	return append(append(line, text[1:]...), '\n')
}

// decode reads the response to request id. It returns the error of the response, or the reason why
// the line is no response, which quotes its beginning.
func decode(line []byte, id int, reply any) (failed *Error, err error) {
	var head struct {
		ID    int    `json:"id"`
		Error string `json:"error"`
		Do    string `json:"do"`
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	if err := decoder.Decode(&head); err != nil {
		return nil, fmt.Errorf("replied %q, which is not JSON of the expected form", OneLine(string(line), 60))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("replied %q, which is more than one JSON value", OneLine(string(line), 60))
	}
	if head.ID != id {
		return nil, fmt.Errorf("responded to request %d instead of request %d", head.ID, id)
	}
	if head.Error != "" {
		return &Error{OneLine(head.Error, 300), OneLine(head.Do, 300)}, nil
	}
	if reply == nil {
		return nil, nil
	}
	if err := json.Unmarshal(line, reply); err != nil {
		return nil, fmt.Errorf("replied %q, which is not JSON of the expected form", OneLine(string(line), 60))
	}
	return nil, nil
}

// OneLine makes foreign text a single printable line of at most limit characters.
func OneLine(text string, limit int) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == unicode.ReplacementChar
	}), " ")
	if runes := []rune(text); len(runes) > limit {
		text = string(runes[:limit]) + "…"
	}
	return text
}

// tail keeps the last bytes that a process prints.
type tail struct {
	mutex sync.Mutex
	text  []byte
}

const tailBytes = 4096

func (t *tail) Write(data []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.text = append(t.text, data...)
	t.text = t.text[max(0, len(t.text)-tailBytes):]
	return len(data), nil
}

// lastLine is the last non-empty line. Python ends a traceback with the error.
func (t *tail) lastLine() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	return OneLine(lines[len(lines)-1], 300)
}
