package oracle

import (
	"reflect"
	"testing"
)

func TestChooseTile(t *testing.T) {
	if reflect.ValueOf(chooseTile(false)).Pointer() != reflect.ValueOf(tileGo).Pointer() {
		t.Error("without AVX2 the tile is not the portable one")
	}
	if reflect.ValueOf(chooseTile(true)).Pointer() != reflect.ValueOf(tileAVX2).Pointer() {
		t.Error("with AVX2 the tile is not the one for it")
	}
}
