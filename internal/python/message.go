package python

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"attune/internal/child"
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
func OneLine(text string, limit int) string { return child.OneLine(text, limit) }
