//go:build !amd64

package oracle

var tile = tileGo
