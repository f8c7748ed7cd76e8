package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ownerAccount is the account that has the streams. Every worker has an account of its own, which has
// nothing but the imports of importsOf: permissions of subjects alone do not confine a worker, because
// the server publishes its answers wherever a request says.
const ownerAccount = "FLEET"

// importsOf are the subjects of the owner's account that a worker may publish to, and those that it may
// subscribe to. It takes jobs of its class, publishes results, files and its state under its own name,
// and reads all files. It cannot read results, publish jobs, or touch a stream.
func importsOf(name, class string) (publish, subscribe []string) {
	consumer, cancels := "*", cancelSubject+"*"
	if class != "" {
		consumer, cancels = consumerOf(class), cancelSubject+class
	}
	return []string{
		"$JS.API.CONSUMER.INFO." + jobStream + "." + consumer,
		"$JS.API.CONSUMER.MSG.NEXT." + jobStream + "." + consumer,
		"$JS.ACK." + jobStream + "." + consumer + ".>",
		"$JS.API.STREAM.INFO." + fileStream,
		"$JS.API.DIRECT.GET." + fileStream + "." + fileSubject + ">",
		resultSubject + name + ".*",
		"$KV." + workerBucket + "." + name,
		fileSubject + name + ".*.*",
	}, []string{cancels}
}

// workerAPI is JetStream's prefix in the account of a worker, whose own JetStream is not enabled.
const workerAPI = "attune.api"

// local is a subject of the owner's account in that of a worker.
func local(subject string) string {
	if rest, is := strings.CutPrefix(subject, "$JS.API."); is {
		return workerAPI + "." + rest
	}
	return subject
}

// accountOf is the account of a worker.
func accountOf(name string) string { return "W_" + name }

// accounts are the accounts of a server in its own language.
func accounts(owner string, workers map[string]Invitation) string {
	var b strings.Builder
	names := slices.Sorted(maps.Keys(workers))
	publish, subscribe := importsOf("*", "")
	fmt.Fprintf(&b, "accounts {\n%s {\njetstream: enabled\nusers: [{nkey: %s}]\nexports: [", ownerAccount, owner)
	for _, s := range publish {
		fmt.Fprintf(&b, "{service: %q}\n", s)
	}
	for _, s := range subscribe {
		fmt.Fprintf(&b, "{stream: %q}\n", s)
	}
	b.WriteString("]\nimports: [")
	for _, name := range names {
		fmt.Fprintf(&b, "{service: {account: %q, subject: %q}}\n", accountOf(name), drainSubject+name)
	}
	b.WriteString("]\n}\n")
	for _, name := range names {
		w := workers[name]
		publish, subscribe := importsOf(w.Name, w.Class)
		fmt.Fprintf(&b, "%q {\nusers: [{nkey: %s, permissions: %s}]\nexports: [{service: %q}]\nimports: [", accountOf(name), w.Public, permissions(w.Name, publish, subscribe), drainSubject+name)
		for _, s := range publish {
			fmt.Fprintf(&b, "{service: {account: %s, subject: %q}, to: %q}\n", ownerAccount, s, local(s))
		}
		for _, s := range subscribe {
			fmt.Fprintf(&b, "{stream: {account: %s, subject: %q}}\n", ownerAccount, s)
		}
		b.WriteString("]\n}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// permissions deny what is not imported, so that a worker that tries it is told.
func permissions(name string, publish, subscribe []string) string {
	inbox, own := inboxOf(name)+".>", []string{}
	for _, s := range publish {
		own = append(own, local(s))
	}
	return fmt.Sprintf("{publish: {allow: [%s]}, subscribe: {allow: [%s]}, allow_responses: {max: 1, expires: \"10s\"}}",
		quoted(append(own, inbox)), quoted(append(subscribe[:len(subscribe):len(subscribe)], inbox, drainSubject+name)))
}

func quoted(all []string) string { return `"` + strings.Join(all, `", "`) + `"` }

// inboxOf is the prefix of the answers to a worker.
func inboxOf(name string) string { return "_INBOX_" + name }
