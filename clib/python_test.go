package clib

import (
	"os/exec"
	"strings"
	"testing"
)

// packPython prints the parameters that the Python package packs, each field with its position as
// its value, in hex.
const packPython = `
import importlib.util
spec = importlib.util.spec_from_file_location("library", "../python/attune/_library.py")
library = importlib.util.module_from_spec(spec)
spec.loader.exec_module(library)
print(library.PARAMS.pack(*(float(i) if i == 30 else i for i in range(36))).hex())
`

// printParams prints the fields of parameters that are read in hex.
const printParams = `
#include <stdio.h>
#include <string.h>

#include "attune_sdpa.h"

int main(void) {
  static char text[4096];
  attune_sdpa_params p;
  unsigned char bytes[sizeof p] = {0};
  if (scanf("%4095s", text) != 1 || strlen(text) > 2 * sizeof p) return 1;
  for (size_t i = 0; i < strlen(text) / 2; i++) {
    unsigned byte;
    if (sscanf(text + 2 * i, "%2x", &byte) != 1) return 2;
    bytes[i] = (unsigned char)byte;
  }
  memcpy(&p, bytes, sizeof p);
  const void *first[] = {p.q, p.k, p.v, p.o, p.lse, p.descale_q, p.descale_k, p.descale_v};
  printf("%zu", p.struct_size);
  for (int i = 0; i < 8; i++) printf(" %zu", (size_t)first[i]);
  printf(" %d %d %d %d %d %d", p.batch, p.heads, p.kv_heads, p.queries, p.keys, p.head_dim);
  for (int i = 0; i < 12; i++) {
    const int64_t *strides[] = {p.q_stride, p.k_stride, p.v_stride, p.o_stride};
    printf(" %d", (int)strides[i / 3][i % 3]);
  }
  printf(" %d %d %d %g %d %d", p.dtype, p.out_dtype, p.causal, p.scale, p.window_left, p.window_right);
  printf(" %zu %zu %zu", (size_t)p.sinks, (size_t)p.workspace, p.workspace_bytes);
  return 0;
}
`

// The Python package packs the parameters as the header lays them out.
func TestPythonPacksParameters(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	got := runC(t, printParams, command(t, ".", python, "-B", "-c", packPython))
	want := "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35"
	if strings.TrimSpace(got) != want {
		t.Errorf("the library reads\n%s, want\n%s", got, want)
	}
}
