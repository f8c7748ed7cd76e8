package child

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A program that is started alone does not reach a server of this machine, and one that is not does.
func TestAlone(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	connects := func() (string, error) {
		cmd := exec.Command(python, "-c", "import socket, os; print(os.getuid()); socket.create_connection(('127.0.0.1', "+port+"), 5)")
		cmd.SysProcAttr = Alone(&syscall.SysProcAttr{})
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := connects(); err != nil {
		t.Fatalf("with a network: %v: %s", err, out)
	}
	t.Setenv(aloneVariable, "1")
	out, err := connects()
	if err == nil {
		t.Error("a program that is alone has a network")
	}
	if strings.Contains(err.Error(), "operation not permitted") {
		t.Skip("this system has no namespaces for users")
	}
	if !strings.Contains(out, "unreachable") {
		t.Errorf("%v: %s", err, out)
	}
}

// A process isolates the programs that it starts, unless the system does not allow that.
func TestIsolate(t *testing.T) {
	t.Setenv(aloneVariable, "")
	err := Isolate()
	if isolated := os.Getenv(aloneVariable) != ""; isolated != (err == nil) {
		t.Errorf("isolated %t, %v", isolated, err)
	}
	if err != nil && !strings.Contains(err.Error(), "no namespace of their own") {
		t.Error(err)
	}
}
