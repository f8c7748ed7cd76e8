/* The configuration of Python that Python.h reads. The one of the Python that builds the wheel
 * describes its own machine; this one describes the target, which may be another. The stable
 * interface needs sizes only, and the compiler knows them. */
#ifndef Py_PYCONFIG_H
#define Py_PYCONFIG_H

#define HAVE_ERRNO_H 1
#define HAVE_STDDEF_H 1
#define HAVE_UNISTD_H 1
#define HAVE_WCHAR_H 1

#define SIZEOF_INT __SIZEOF_INT__
#define SIZEOF_LONG __SIZEOF_LONG__
#define SIZEOF_LONG_LONG __SIZEOF_LONG_LONG__
#define SIZEOF_PID_T __SIZEOF_INT__
#define SIZEOF_SIZE_T __SIZEOF_SIZE_T__
#define SIZEOF_VOID_P __SIZEOF_POINTER__
#define SIZEOF_WCHAR_T __SIZEOF_WCHAR_T__

#endif
