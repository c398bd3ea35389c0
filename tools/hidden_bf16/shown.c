/* Preloaded into a process, this lets CPUID name AVX512_BF16 where a hypervisor hides it.

Linux can make CPUID fault for a thread and all that it starts (ARCH_SET_CPUID). The handler of the
fault runs the real instruction, sets the one bit, and goes on after it. Others that want to handle
this signal, as Python's faulthandler does, are told that they do. */

#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { FEATURES = 7, SUBLEAF = 1, BF16 = 1 << 5, LENGTH = 2 };

static void set_cpuid(long allowed)
{
    if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, allowed)) {
        fputs("this kernel or processor cannot make CPUID fault\n", stderr);
        _exit(2);
    }
}

typedef int (*setter)(int, const struct sigaction *, struct sigaction *);

static int set_handler(int number, const struct sigaction *wanted, struct sigaction *before)
{
    return ((setter)dlsym(RTLD_NEXT, "sigaction"))(number, wanted, before);
}

int sigaction(int number, const struct sigaction *wanted, struct sigaction *before)
{
    return set_handler(number, number == SIGSEGV ? NULL : wanted, before);
}

static void answer(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)registers[REG_RIP];
    unsigned leaf = registers[REG_RAX], part = registers[REG_RCX], a, b, c, d;

    (void)info;
    if (code[0] != 0x0f || code[1] != 0xa2) { /* another fault: let it happen again, for good */
        struct sigaction fatal = {.sa_handler = SIG_DFL};
        set_handler(number, &fatal, NULL);
        return;
    }
    set_cpuid(1);
    __cpuid_count(leaf, part, a, b, c, d);
    set_cpuid(0);
    if (leaf == FEATURES && part == 0 && a < SUBLEAF)
        a = SUBLEAF;
    if (leaf == FEATURES && part == SUBLEAF)
        a |= BF16;
    registers[REG_RAX] = a;
    registers[REG_RBX] = b;
    registers[REG_RCX] = c;
    registers[REG_RDX] = d;
    registers[REG_RIP] += LENGTH;
}

__attribute__((constructor)) static void begin(void)
{
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    set_handler(SIGSEGV, &action, NULL);
    set_cpuid(0);
}
