package oracle

import (
	"encoding/json"
	"testing"
)

// A place is written by its element, or by the four keys of attention. Both are read again.
func TestPlaceInJSON(t *testing.T) {
	attention, element := Place{Batch: 1, Head: 2, Row: 3, Dim: 4}, Place{Element: "y[3, 17]"}
	for want, value := range map[string]any{
		`{"batch":1,"head":2,"row":3,"dim":4}`:                        attention,
		`{"element":"y[3, 17]"}`:                                      element,
		`{"batch":1,"head":2,"row":3,"dim":4,"got":5.5,"want":-6.25}`: Worst{Place: attention, Got: 5.5, Want: -6.25},
		`{"element":"y[3, 17]","got":5.5,"want":-6.25}`:               Worst{Place: element, Got: 5.5, Want: -6.25},
	} {
		text, err := json.Marshal(value)
		if err != nil || string(text) != want {
			t.Errorf("%s, %v; want %s", text, err, want)
		}
		var place Place
		var worst Worst
		switch value := value.(type) {
		case Place:
			if err := json.Unmarshal(text, &place); err != nil || place != value {
				t.Errorf("%s is read as %+v, %v", text, place, err)
			}
		case Worst:
			if err := json.Unmarshal(text, &worst); err != nil || worst != value {
				t.Errorf("%s is read as %+v, %v", text, worst, err)
			}
		}
	}
	// Integers have all digits.
	exact := Worst{Place: element, Got: 0x1p53, Want: -1, GotInteger: "9007199254740993", WantInteger: "-1"}
	if text, err := json.Marshal(exact); err != nil || string(text) != `{"element":"y[3, 17]","got":9007199254740993,"want":-1}` {
		t.Errorf("%s, %v", text, err)
	}
	if attention.String() != "batch 1 head 2 row 3 dim 4" || element.String() != "y[3, 17]" {
		t.Errorf("%s, %s", attention, element)
	}
}
