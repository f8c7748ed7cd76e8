package cases

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"attune/internal/spec"
)

// decode reads the JSON of a case. Its errors say what the text has and what a case needs.
func (c *Case) decode(text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return errors.New("the file is empty; a case is a JSON object")
	}
	if err := checkKeys(text); err != nil {
		return err
	}
	if err := unknownKeys(text); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(c); err != nil {
		return explain(err, text)
	}
	if err := decoder.Decode(&json.RawMessage{}); err != io.EOF {
		return errors.New("unexpected text after the case; a file holds one JSON object")
	}
	return nil
}

// explain describes an error of package json in terms of the file.
func explain(err error, text []byte) error {
	var mistyped *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("unexpected end of the file in line %d; is a bracket missing?", lineAt(text, int64(len(bytes.TrimSpace(text)))))
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: no valid JSON: %w", lineAt(text, syntax.Offset), err)
	case errors.As(err, &mistyped) && mistyped.Field == "":
		return fmt.Errorf("found %s; expected %s", article(mistyped.Value), expectedValue(mistyped.Type))
	case errors.As(err, &mistyped):
		return fmt.Errorf("line %d: %s: found %s; expected %s", lineAt(text, mistyped.Offset), mistyped.Field, article(mistyped.Value), expectedValue(mistyped.Type))
	}
	return err
}

// unknownKeys reports all keys that a case does not have, each with the nearest one that it has.
func unknownKeys(text []byte) error {
	var document any
	if json.Unmarshal(text, &document) != nil {
		return nil // the reader of the case reports it
	}
	var faults []string
	visitKeys(document, reflect.TypeFor[Case](), "", &faults)
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%s; `attune help cases` lists the keys of a case", strings.Join(faults, "; "))
}

// visitKeys compares the keys of a value with the fields of the type that it is read into. path is
// that of the value, with a dot at its end.
func visitKeys(value any, t reflect.Type, path string, faults *[]string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch value := value.(type) {
	case []any:
		if t.Kind() == reflect.Slice {
			for i, element := range value {
				visitKeys(element, t.Elem(), fmt.Sprintf("%s%d.", path, i), faults)
			}
		}
	case map[string]any:
		known := map[string]reflect.Type{}
		if t.Kind() == reflect.Struct {
			addFields(t, known)
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			field := known[strings.ToLower(key)]
			switch {
			case t.Kind() == reflect.Map:
				field = t.Elem()
			case t.Kind() != reflect.Struct:
				return // a mistyped value, which the reader reports
			case field == nil:
				*faults = append(*faults, unknownKey(path+key, key, known))
				continue
			}
			visitKeys(value[key], field, path+key+".", faults)
		}
	}
}

func unknownKey(path, key string, known map[string]reflect.Type) string {
	text := fmt.Sprintf("unknown key %q", path)
	if nearest := spec.Nearest(key, slices.Sorted(maps.Keys(known))); nearest != "" {
		text += fmt.Sprintf(", did you mean %q?", nearest)
	}
	return text
}

// addFields adds the keys of a struct and of those that it embeds.
func addFields(t reflect.Type, known map[string]reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous:
			addFields(field.Type, known)
		case field.IsExported() && name != "" && name != "-":
			known[name] = field.Type
		}
	}
}

func article(value string) string {
	switch kind, _, _ := strings.Cut(value, " "); kind {
	case "array", "object":
		return "an " + value
	case "string", "bool":
		return "a " + value
	}
	return value
}

// expectedValue names the values of a type.
func expectedValue(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Uint32:
		return "an integer from 0 to 4294967295"
	case reflect.Uint64:
		return "an integer from 0 to 18446744073709551615"
	case reflect.Int:
		return "an integer"
	case reflect.Float32:
		return "a number that fits a float of 32 bits"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "a list"
	}
	return "an object"
}

// lineAt returns the number of the line with a byte.
func lineAt(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(int(offset), len(text))], []byte("\n"))
}

// checkKeys reports a key that an object has twice. Of two values only one would count, and the other
// may be the one that was meant. As for the reader of the case, upper and lower case are the same.
func checkKeys(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	levels := []level{{}} // the innermost object or list last
	for {
		token, err := decoder.Token()
		if err != nil {
			return nil // the reader of the case reports it
		}
		in := &levels[len(levels)-1]
		switch {
		case token == json.Delim('}') || token == json.Delim(']'):
			levels = levels[:len(levels)-1]
			continue
		case in.wantsKey:
			key, _ := token.(string)
			if key = strings.ToLower(key); in.keys[key] {
				return fmt.Errorf("line %d: the key %q is given twice; keep one of them", lineAt(text, decoder.InputOffset()), key)
			}
			in.keys[key], in.wantsKey = true, false
			continue
		}
		in.wantsKey = in.keys != nil
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{keys: map[string]bool{}, wantsKey: true})
		case json.Delim('['):
			levels = append(levels, level{})
		}
	}
}

// level is an object or a list that is being read.
type level struct {
	keys     map[string]bool // nil for a list
	wantsKey bool            // the next token is a key
}

// parseHex reads the bytes of a buffer.
func parseHex(digits string) ([]byte, error) {
	data, err := hex.DecodeString(digits)
	var invalid hex.InvalidByteError
	switch {
	case errors.As(err, &invalid):
		at := strings.IndexFunc(digits, func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF", r) })
		return nil, fmt.Errorf("hex: %q at position %d is not a hexadecimal digit", []rune(digits[at:])[0], at)
	case err != nil:
		return nil, fmt.Errorf("hex: %d digits; a byte has two", len(digits))
	}
	return data, nil
}
