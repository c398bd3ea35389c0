"""The nets and solvers of models/, written as functions that print Caffe's text format."""
