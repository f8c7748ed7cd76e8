package toolchain

import (
	"bufio"
	"regexp"
	"strconv"
	"strings"
)

// Resources is what one entry function needs of the chip, from the log of ptxas -v and the launch contract.
type Resources struct {
	Registers          int `json:"registers"`            // a thread
	StaticSharedBytes  int `json:"static_shared_bytes"`  // a block, placed by the compiler
	DynamicSharedBytes int `json:"dynamic_shared_bytes"` // a block, asked for at launch
	SpillStoreBytes    int `json:"spill_store_bytes"`
	SpillLoadBytes     int `json:"spill_load_bytes"`
	StackBytes         int `json:"stack_bytes"` // of the deepest calls; of the largest frame where functions call in circles
	Barriers           int `json:"barriers"`
	ConstantBytes      int `json:"constant_bytes"` // all banks together
}

// SharedBytes is the shared memory of a block, static and dynamic.
func (r Resources) SharedBytes() int { return r.StaticSharedBytes + r.DynamicSharedBytes }

// SpillBytes is what is stored and loaded because registers ran out.
func (r Resources) SpillBytes() int { return r.SpillStoreBytes + r.SpillLoadBytes }

// The lines of ptxas -v that say something of one function. Between "Used N registers" and the amounts that follow, releases
// of CUDA put more or fewer words ("used 1 barriers", "8 bytes cumulative stack size"), so each amount is looked for alone.
var (
	ptxasEntry     = regexp.MustCompile(`Compiling entry function '([^']+)' for '([^']+)'`)
	ptxasFunction  = regexp.MustCompile(`Function properties for (\S+)`)
	ptxasRegisters = regexp.MustCompile(`\b[Uu]sed (\d+) registers`)
	ptxasBarriers  = regexp.MustCompile(`\bused (\d+) barriers`)
	ptxasShared    = regexp.MustCompile(`\b(\d+)(?:\+(\d+))? bytes smem`)
	ptxasConstant  = regexp.MustCompile(`\b(\d+) bytes cmem\[\d+\]`)
	ptxasStack     = regexp.MustCompile(`\b(\d+) bytes (?:cumulative stack size|stack frame)`)
	ptxasStores    = regexp.MustCompile(`\b(\d+) bytes spill stores`)
	ptxasLoads     = regexp.MustCompile(`\b(\d+) bytes spill loads`)
)

// parsePtxasLog reads the log of ptxas -v and returns the resources of each entry function by name. ptxas lists the functions that
// an entry calls (those that were not inlined) after it, with spills of their own and once for each entry that calls them: they
// count towards the entry.
func parsePtxasLog(log string) map[string]Resources {
	entries := map[string]*Resources{}
	var current *Resources
	lines := bufio.NewScanner(strings.NewReader(log))
	lines.Buffer(nil, len(log)+1)
	for lines.Scan() {
		line := lines.Text()
		if m := ptxasEntry.FindStringSubmatch(line); m != nil {
			current = &Resources{}
			entries[m[1]] = current
			continue
		}
		// "Function properties for f" of another entry of the same file returns to that entry.
		if m := ptxasFunction.FindStringSubmatch(line); m != nil && entries[m[1]] != nil {
			current = entries[m[1]]
			continue
		}
		if current != nil {
			current.readLine(line)
		}
	}
	found := map[string]Resources{}
	for name, r := range entries {
		found[name] = *r
	}
	return found
}

func (r *Resources) readLine(line string) {
	for _, amount := range []struct {
		pattern *regexp.Regexp
		into    *int
	}{
		{ptxasRegisters, &r.Registers},
		{ptxasBarriers, &r.Barriers},
		{ptxasStack, &r.StackBytes},
	} {
		if m := amount.pattern.FindStringSubmatch(line); m != nil {
			*amount.into = max(*amount.into, atoi(m[1]))
		}
	}
	// Spills of the functions an entry calls add up.
	if m := ptxasStores.FindStringSubmatch(line); m != nil {
		r.SpillStoreBytes += atoi(m[1])
	}
	if m := ptxasLoads.FindStringSubmatch(line); m != nil {
		r.SpillLoadBytes += atoi(m[1])
	}
	if m := ptxasShared.FindStringSubmatch(line); m != nil {
		r.StaticSharedBytes = atoi(m[1]) + atoi(m[2])
	}
	for _, m := range ptxasConstant.FindAllStringSubmatch(line, -1) {
		if strings.Contains(line, "egisters") { // the line of the module lists banks too
			r.ConstantBytes += atoi(m[1])
		}
	}
}

// atoi reads digits that a pattern has matched, and none as 0. No true amount has more than 31 bits; what has counts as the
// largest that fits, so that sums cannot overflow.
func atoi(digits string) int {
	n, _ := strconv.ParseInt(digits, 10, 32)
	return int(n)
}
