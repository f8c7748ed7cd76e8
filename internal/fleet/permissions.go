package fleet

// permissions are the subjects of a worker: it takes jobs of its class, and publishes results and its
// state under its own name. It cannot read results, publish jobs, or touch a stream.
func permissions(name, class string) (publish, subscribe []string) {
	consumer, cancels := "*", cancelSubject+"*"
	if class != "" {
		consumer, cancels = consumerOf(class), cancelSubject+class
	}
	objects := "OBJ_" + objectBucket
	publish = []string{
		"$JS.API.INFO",
		"$JS.API.CONSUMER.INFO." + jobStream + "." + consumer,
		"$JS.API.CONSUMER.MSG.NEXT." + jobStream + "." + consumer,
		"$JS.ACK." + jobStream + "." + consumer + ".>",
		resultSubject + name + ".*",
		"$KV." + workerBucket + "." + name,
		// Files: it reads and adds them. A reader checks the hash of what it gets.
		"$JS.API.STREAM.INFO." + objects, "$JS.API.DIRECT.GET." + objects + ".>", "$JS.API.STREAM.MSG.GET." + objects,
		"$JS.API.CONSUMER.CREATE." + objects + ".>", "$JS.API.CONSUMER.DELETE." + objects + ".>", "$JS.FC." + objects + ".>",
		"$O." + objectBucket + ".>",
		inboxOf(name) + ".>",
	}
	return publish, []string{inboxOf(name) + ".>", cancels, drainSubject + name}
}

// inboxOf is the prefix of the answers to a worker, so that no other one can read them.
func inboxOf(name string) string { return "_INBOX_" + name }
