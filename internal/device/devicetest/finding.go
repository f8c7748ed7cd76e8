package devicetest

import (
	"fmt"

	"attune/internal/finding"
)

// Found is the finding about the buffer of an argument, which its detail begins with: "argument 1: ...".
func Found(kind finding.Kind, detail string) finding.Finding {
	v := finding.Variable{Space: finding.Argument}
	if _, err := fmt.Sscanf(detail, "argument %d:", &v.Index); err != nil {
		panic(err)
	}
	return finding.Of(kind, v, detail)
}
