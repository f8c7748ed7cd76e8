package oracle

import (
	"reflect"
	"testing"
)

func TestChooseTile(t *testing.T) {
	if reflect.ValueOf(chooseTile(false)).Pointer() != reflect.ValueOf(tileGo).Pointer() {
		t.Error("without AVX2: want tileGo")
	}
	if reflect.ValueOf(chooseTile(true)).Pointer() != reflect.ValueOf(tileAVX2).Pointer() {
		t.Error("with AVX2: want tileAVX2")
	}
}
