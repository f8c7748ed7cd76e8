import no_such_library.part
