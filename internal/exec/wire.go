package exec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Requests. client/client.h has the same numbers.
const (
	requestHello = iota + 1
	requestAlloc
	requestFree
	requestCopy
	requestFill
	requestLoad
	requestUnload
	requestFunction
	requestGlobal
	requestLaunch
	requestTensorMap
	requestUnsupported
	requestRegister
	requestUnregister
	requestRange
	requestKernels
	requestMemory
	requestLimit
	requestLibrary
	requestTexture
	requestTextureFree
	requestMap
	requestUnmap
)

// requestReports is of attune's Python package, apart from those of the driver.
const requestReports = 64

// status is a CUresult of the driver.
type status int32

// The results that the server returns.
const (
	success              status = 0
	invalidValue         status = 1
	outOfMemory          status = 2
	invalidImage         status = 200
	noBinary             status = 209
	invalidPTX           status = 218
	invalidHandle        status = 400
	notFound             status = 500
	launchTimeout        status = 702
	assertFailed         status = 710
	alreadyRegistered    status = 712
	notRegistered        status = 713
	launchFailed         status = 719
	cooperativeTooLarge  status = 720
	notSupported         status = 801
	invalidClusterSize   status = 912
	resourcesOutOfLaunch status = 701
)

// maxRequest bounds a request in bytes: the image of a module is the largest.
const maxRequest = 1 << 31

// readRequest reads a request. io.EOF means that the program has ended.
func readRequest(r io.Reader) (request uint64, body []byte, err error) {
	var prefix [16]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return 0, nil, err
	}
	request, size := binary.LittleEndian.Uint64(prefix[:]), binary.LittleEndian.Uint64(prefix[8:])
	if size > maxRequest {
		return 0, nil, fmt.Errorf("a request of %d bytes", size)
	}
	body = make([]byte, size)
	_, err = io.ReadFull(r, body)
	return request, body, err
}

// writeReply writes the reply to a request: the text that kernels have printed, and the result.
func writeReply(w io.Writer, s status, printed, result []byte) error {
	reply := binary.LittleEndian.AppendUint32(nil, uint32(s))
	reply = binary.LittleEndian.AppendUint32(reply, uint32(len(printed)))
	reply = binary.LittleEndian.AppendUint32(reply, uint32(len(result)))
	_, err := w.Write(append(append(reply, printed...), result...))
	return err
}

var errShort = errors.New("a request is shorter than its kind")

// fields reads the fixed fields of a request.
type fields struct {
	data []byte
	err  error
}

func (f *fields) u32() uint32 {
	if len(f.data) < 4 {
		f.err = errShort
		return 0
	}
	v := binary.LittleEndian.Uint32(f.data)
	f.data = f.data[4:]
	return v
}

func (f *fields) u64() uint64 {
	low := uint64(f.u32())
	return low | uint64(f.u32())<<32
}

// extents reads three sizes.
func (f *fields) extents() [3]int {
	return [3]int{int(f.u32()), int(f.u32()), int(f.u32())}
}

func u32s(values ...int) []byte {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, uint32(v))
	}
	return data
}

func u64s(values ...uint64) []byte {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, v)
	}
	return data
}
