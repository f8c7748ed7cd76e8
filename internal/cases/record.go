package cases

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"attune/internal/regular"
)

// Record stores the output of a device, and the device's description, in the file of a case. It
// writes only the buffers that the case compares, and keeps everything else in the file unchanged.
func Record(file string, args map[string][]byte, hw any) error {
	text, err := regular.Read(file, maxFile)
	if err != nil {
		return err
	}
	if text, err = withRecording(text, args, hw); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, text, 0o644)
}

// withRecording returns the text of a case with new expected bytes and device.
func withRecording(text []byte, args map[string][]byte, hw any) ([]byte, error) {
	var whole, expect, buffers object
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(whole.get("expect"), &expect); err != nil {
		return nil, fmt.Errorf("expect: %w", err)
	}
	if err := json.Unmarshal(expect.get("args"), &buffers); err != nil {
		return nil, fmt.Errorf("expect.args: %w", err)
	}
	for i, m := range buffers {
		var buffer object
		if err := json.Unmarshal(m.value, &buffer); err != nil {
			return nil, fmt.Errorf("expect.args.%s: %w", m.name, err)
		}
		if data, ok := args[m.name]; ok {
			buffer.set("hex", fmt.Appendf(nil, "%q", hex.EncodeToString(data)))
		}
		buffers[i].value = buffer.text()
	}
	machine, err := json.Marshal(hw)
	if err != nil {
		return nil, err
	}
	expect.set("args", buffers.text())
	whole.set("expect", expect.text())
	whole.set("hw", machine)
	var out bytes.Buffer
	if err := json.Indent(&out, whole.text(), "", " "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// object is a JSON object that keeps the order and the spelling of its members.
type object []member

type member struct {
	name  string
	value json.RawMessage
}

// UnmarshalJSON reads an object.
func (o *object) UnmarshalJSON(text []byte) error {
	in := json.NewDecoder(bytes.NewReader(text))
	if begin, err := in.Token(); err != nil || begin != json.Delim('{') {
		return fmt.Errorf("found %.20s; expected a JSON object", text)
	}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return err
		}
		*o = append(*o, member{name.(string), value})
	}
	return nil
}

// get returns the value of a member; an empty object if it is absent.
func (o object) get(name string) json.RawMessage {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return json.RawMessage("{}")
}

// set changes a member or appends it.
func (o *object) set(name string, value json.RawMessage) {
	for i, m := range *o {
		if m.name == name {
			(*o)[i].value = value
			return
		}
	}
	*o = append(*o, member{name, value})
}

func (o object) text() json.RawMessage {
	text := []byte("{")
	for i, m := range o {
		if i > 0 {
			text = append(text, ',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			panic("BUG: cannot encode a member name: " + err.Error())
		}
		text = append(append(append(text, name...), ':'), m.value...)
	}
	return append(text, '}')
}
