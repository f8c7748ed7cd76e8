package exec

import (
	"debug/elf"
	"fmt"
	"strings"
)

// refusedLibraries are NVIDIA's libraries that attune has nothing for, by the beginning of their file
// names. Their kernels are machine code, and they talk to NVIDIA's driver alone.
var refusedLibraries = []struct{ file, name string }{
	{"libcudnn", "cuDNN"},
	{"libcufft", "cuFFT"},
	{"libcusolver", "cuSOLVER"},
	{"libcusparse", "cuSPARSE"},
	{"libcurand", "cuRAND"},
	{"libcutensor", "cuTENSOR"},
	{"libnccl", "NCCL"},
	{"libnvjpeg", "nvJPEG"},
	{"libnpp", "NPP"},
	{"libnvshmem", "NVSHMEM"},
	{"libnvJitLink", "nvJitLink"},
	{"libnvinfer", "TensorRT"},
	{"libcufile", "cuFile"},
	{"libnvcuvid", "the video decoder"},
}

// refusedNeeds lists the libraries that a program is linked with and that attune does not run, each
// with a sentence. A program that is no ELF file, such as a script, has none.
func refusedNeeds(path string) []string {
	f, err := elf.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return nil
	}
	var refused []string
	for _, library := range needed {
		for _, r := range refusedLibraries {
			if strings.HasPrefix(library, r.file) {
				refused = append(refused, fmt.Sprintf("needs %s: attune does not run %s", library, r.name))
				break
			}
		}
	}
	return refused
}
