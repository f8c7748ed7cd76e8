package child

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// aloneVariable is set in a process whose kernels and references are those of others, and in its
// children: the programs that it starts for them have no network.
const aloneVariable = "ATTUNE_ALONE"

// Isolate takes the network from the programs that this process and its children start from now on. The
// error says why this system does not allow that.
func Isolate() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	trial := exec.Command(self, "--help")
	trial.SysProcAttr = alone(&syscall.SysProcAttr{})
	if err := trial.Run(); err != nil {
		return fmt.Errorf("processes get no namespace of their own here: %w", err)
	}
	return os.Setenv(aloneVariable, "1")
}

// Alone leaves a program without network if this process is isolated: it is the only one in a network
// namespace, whose loopback is down.
func Alone(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	if os.Getenv(aloneVariable) == "" {
		return attr
	}
	return alone(attr)
}

// alone keeps the user: a namespace of users, which others than root need for one of networks, has that
// user only.
func alone(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr.Cloneflags |= syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	return attr
}
