package lab

import (
	"io/fs"
	"strings"
	"testing"
)

// A patch changes the candidate and nothing that judges it: a reference that is a kernel of the same
// folder is built from the folder itself.
func TestPatchedLab(t *testing.T) {
	t.Parallel()
	s := newDeclared(t, declaredKernels+"/transpose")
	own := s.Lab
	read := func(name string) string {
		text, err := fs.ReadFile(own.Builder.Folder(), name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	naive := read("naive.cu")
	wrong := strings.Replace(naive, "y[c * rows + blockIdx.x]", "y[c * rows + blockIdx.x + 5000]", 1)
	if wrong == naive {
		t.Fatal("naive.cu has changed")
	}
	kernel := read("transpose.cu")
	s.Lab = own.Patched(map[string][]byte{"naive.cu": []byte(wrong), "transpose.cu": []byte("// patched\n" + kernel)})
	expectOutcome(t, s.runOne(s.declaredRequest("transpose")), rightOnTheSimulator)
	s.Lab = own.Patched(map[string][]byte{"transpose.cu": []byte(kernel + "nonsense\n")})
	s.runs = nil
	broken := s.runOne(s.declaredRequest("transpose"))
	expectOutcome(t, broken, "over-budget fail/not-measured/not-measured/not-measured")
	expectReason(t, broken.Reasons.Resources, "nonsense")
	if read("transpose.cu") != kernel || own.Builder == s.Builder {
		t.Error("the folder or its builder has changed")
	}
}
