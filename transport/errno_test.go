package transport

import "syscall"

const errnoAccess = syscall.EACCES
