/* Runs kernels of another processor's library for a Python process on this one.
 *
 * It reads calls from its standard input and answers on its standard output. A call is
 *
 *     name length, name, struct size, struct, number of pointers, pointers
 *
 * and a pointer is: its offset in the struct, the number of arrays behind it (1, or more for a table
 * of arrays; 0 for NULL), whether it is a table, and for each array its size and its bytes. The
 * answer is the status (0: done) and the bytes of all arrays after the call. Numbers are int64.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, MOST_ARRAYS = 256 };

static void read_bytes(void *target, int64_t size) {
    if (size > 0 && fread(target, (size_t)size, 1, stdin) != 1) exit(feof(stdin) ? 0 : 1);
}

static int64_t read_number(void) {
    int64_t number;
    read_bytes(&number, sizeof number);
    return number;
}

static void write_number(int64_t number) { fwrite(&number, sizeof number, 1, stdout); }

static void *aligned_memory(int64_t size) {
    size_t rounded = ((size_t)size + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    void *memory = aligned_alloc(ALIGNMENT, rounded);
    if (memory == NULL) exit(1);
    return memory;
}

struct array {
    void *memory;
    int64_t size;
};

/* Read the arrays of one pointer, and store their address, or that of their table, in the struct. */
static int64_t read_pointer(char *arguments, struct array *arrays) {
    int64_t offset = read_number(), count = read_number(), is_table = read_number();
    void *address = NULL;
    void **table = is_table ? aligned_memory((count + 1) * (int64_t)sizeof *table) : NULL;
    for (int64_t i = 0; i < count; i++) {
        arrays[i].size = read_number();
        arrays[i].memory = address = aligned_memory(arrays[i].size);
        read_bytes(arrays[i].memory, arrays[i].size);
        if (is_table) table[i] = arrays[i].memory;
    }
    if (is_table) address = table;
    memcpy(arguments + offset, &address, sizeof address);
    return count;
}

int main(int count, char **words) {
    void *library = count == 2 ? dlopen(words[1], RTLD_NOW) : NULL;
    if (library == NULL) {
        fprintf(stderr, "%s\n", count == 2 ? dlerror() : "usage: driver LIBRARY");
        return 1;
    }
    for (;;) {
        char name[128] = "fire_";
        read_bytes(name + 5, read_number());
        int64_t size = read_number(), total = 0;
        char *arguments = aligned_memory(size);
        read_bytes(arguments, size);
        struct array arrays[MOST_ARRAYS];
        for (int64_t pointers = read_number(); pointers > 0; pointers--)
            total += read_pointer(arguments, arrays + total);
        void (*kernel)(const void *) = (void (*)(const void *))dlsym(library, name);
        const int64_t *struct_size = dlsym(library, strcat(name, "_size"));
        int64_t status = kernel == NULL || struct_size == NULL || *struct_size != size;
        if (status == 0) kernel(arguments);
        write_number(status);
        for (int64_t i = 0; i < total; i++) {
            fwrite(arrays[i].memory, 1, (size_t)arrays[i].size, stdout);
            free(arrays[i].memory);
        }
        fflush(stdout);
        free(arguments);
    }
}
